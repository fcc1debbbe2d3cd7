-- holders: capacity outside of a claim, and the fencing tokens that come with it. See holders.py
-- Two rows are no holders: {RESERVED_HOLDER} reserves the next free capacity of a bucket for holders, {PAUSED_HOLDER} keeps
-- a bucket from reservations for a time.

-- name: renew_holder
update {t}holders set until = max(until, ?) where holder = ? and until > ? returning token, until

-- name: buckets_of_holder
select bucket, cost, until from {t}holders where holder = ?

-- name: add_holder
insert or replace into {t}holders (bucket, holder, until, cost, token, since, info) values (?, ?, ?, ?, ?, ?, ?)

-- name: drop_holder
delete from {t}holders where holder = ?

-- name: drop_expired_holders
delete from {t}holders where until <= ?

-- name: drop_reservations
-- a list of buckets as JSON: deletes their reservations and returns them
delete from {t}holders
where holder = {RESERVED_HOLDER} and bucket in (select value from json_each(?))
returning bucket, until

-- name: add_reservation
insert or replace into {t}holders (bucket, holder, until, cost) values (?, {RESERVED_HOLDER}, ?, 0)

-- name: has_reservation
select 1 from {t}holders where bucket = ? and holder = {RESERVED_HOLDER} and until > ?

-- name: pause_reservations
-- the row is under '=' and the bucket: no bucket has such a name, so the row uses no capacity
insert or replace into {t}holders (bucket, holder, until, cost) values ('=' || ?, {PAUSED_HOLDER}, ?, 0)

-- name: reservations_are_paused
select 1 from {t}holders where bucket = '=' || ? and holder = {PAUSED_HOLDER} and until > ?

-- name: holders_in_bucket
-- bucket, now, how many
select bucket, holder, token, since, until, info from {t}holders
where bucket = ? and until > ? and holder not in ({RESERVED_HOLDER}, {PAUSED_HOLDER})
order by since, holder
limit ?

-- name: holders_by_prefix
-- the prefix of bucket names, the first text behind all names with this prefix, now, how many
select bucket, holder, token, since, until, info from {t}holders
where bucket >= ? and bucket < ? and until > ? and holder not in ({RESERVED_HOLDER}, {PAUSED_HOLDER})
order by bucket, since, holder
limit ?

-- name: last_fencing_token
select token from {t}fencing_tokens where bucket = ?

-- name: put_fencing_token
insert or replace into {t}fencing_tokens (bucket, token) values (?, ?)

-- name: drop_fencing_tokens
delete from {t}fencing_tokens where token <= ?
