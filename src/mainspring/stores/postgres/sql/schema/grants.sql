-- Whatever a migration makes is the owner's; the app reads and writes rows and calls functions, and changes no schema.
grant usage on schema {schema} to {app};
alter default privileges for role {owner} in schema {schema} grant select, insert, update, delete on tables to {app};
alter default privileges for role {owner} in schema {schema} grant usage, select on sequences to {app};
alter default privileges for role {owner} in schema {schema} grant execute on functions to {app};
alter default privileges for role {owner} revoke execute on functions from public;
