-- Small versioned documents.

-- put_document: store a document unless a newer version is stored. returns the stored version
create function {schema}.put_document_v1(p_kind text, p_name text, p_version bigint, p_data bytea)
returns table (version bigint, data bytea) language plpgsql as $$
#variable_conflict use_column
begin
    insert into {schema}.documents (kind, name, version, data) values (p_kind, p_name, p_version, p_data)
    on conflict (kind, name) do update set version = excluded.version, data = excluded.data
    where excluded.version >= documents.version;
    return query select d.version, d.data from {schema}.documents d where d.kind = p_kind and d.name = p_name;
end
$$;
