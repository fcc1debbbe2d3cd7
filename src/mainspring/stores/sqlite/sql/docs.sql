-- name: put_doc
insert into {t}docs (kind, name, version, data) values (?, ?, ?, ?)
on conflict (kind, name) do update set version = excluded.version, data = excluded.data
where excluded.version >= version

-- name: doc
select version, data from {t}docs where kind = ? and name = ?

-- name: docs
select name, version, data from {t}docs where kind = ? order by name
