-- roles: two roles of few rights for one namespace. Run it once, as somebody who may create roles, in the
-- database of the store and before the first migration; `mainspring migrate` is then run as the owner.
-- Choose other names and passwords as you like.
create role {owner} login password 'choose one';
create role {app} login password 'choose another';
create schema {schema} authorization {owner};

