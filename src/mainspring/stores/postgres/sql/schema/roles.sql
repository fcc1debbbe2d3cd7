-- Two roles with few rights for one namespace. Run this script once, as a role that may create roles, in the database
-- of the store and before the first migration. Then run `mainspring migrate` as the owner. You may choose other names
-- and passwords.
create role {owner} login password 'choose one';
create role {app} login password 'choose another';
create schema {schema} authorization {owner};

