-- documents: an older version never replaces a newer one

-- name: put_document
insert into {t}documents (kind, name, version, data) values (?, ?, ?, ?)
on conflict (kind, name) do update set version = excluded.version, data = excluded.data
where excluded.version >= version

-- name: document
select version, data from {t}documents where kind = ? and name = ?

-- name: documents
select name, version, data from {t}documents where kind = ? order by name
