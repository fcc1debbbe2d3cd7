-- put: keep a document unless a newer version of it is there; returns the one that stands
create function {schema}.put_v1(p_kind text, p_name text, p_version bigint, p_data bytea)
returns table (version bigint, data bytea) language plpgsql as $$
#variable_conflict use_column
begin
    insert into {schema}.docs (kind, name, version, data) values (p_kind, p_name, p_version, p_data)
    on conflict (kind, name) do update set version = excluded.version, data = excluded.data
    where excluded.version >= docs.version;
    return query select d.version, d.data from {schema}.docs d where d.kind = p_kind and d.name = p_name;
end
$$;
