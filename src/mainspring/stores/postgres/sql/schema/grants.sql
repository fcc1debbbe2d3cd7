-- The owner owns all that a migration creates. The app reads and writes rows and calls functions; it cannot change the
-- schema.
grant usage on schema {schema} to {app};
alter default privileges for role {owner} in schema {schema} grant select, insert, update, delete on tables to {app};
alter default privileges for role {owner} in schema {schema} grant usage, select, update on sequences to {app};
alter default privileges for role {owner} in schema {schema} grant execute on functions to {app};
alter default privileges for role {owner} revoke execute on functions from public;
