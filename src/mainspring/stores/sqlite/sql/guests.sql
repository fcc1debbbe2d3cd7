-- places outside of a claim, and the numbers that come with them: see guests.py

-- name: renew_guest
update {t}guests set until = max(until, ?) where guest = ? and until > ? returning token, until

-- name: guest
select bucket, cost, until from {t}guests where guest = ?

-- name: add_guest
insert or replace into {t}guests (bucket, guest, until, cost, token, since, info) values (?, ?, ?, ?, ?, ?, ?)

-- name: drop_guest
delete from {t}guests where guest = ?

-- name: drop_guests
delete from {t}guests where until <= ?

-- name: kept_places
-- of these buckets, those in which a place is kept for guests, and until when: now it is not
delete from {t}guests
where guest = x'6e657874' and bucket in (select value from json_each(?))
returning bucket, until

-- name: keep_place
insert or replace into {t}guests (bucket, guest, until, cost) values (?, x'6e657874', ?, 0)

-- name: has_kept_place
select 1 from {t}guests where bucket = ? and guest = x'6e657874' and until > ?

-- name: rest
-- of a name that no bucket has: it uses nothing up
insert or replace into {t}guests (bucket, guest, until, cost) values ('=' || ?, x'72657374', ?, 0)

-- name: resting
select 1 from {t}guests where bucket = '=' || ? and guest = x'72657374' and until > ?

-- name: guests_in
-- bucket, now, how many. Places that are kept are no guests
select bucket, guest, token, since, until, info from {t}guests
where bucket = ? and until > ? and guest not in (x'6e657874', x'72657374')
order by since, guest
limit ?

-- name: guests_from
-- what the names of buckets begin with, the first name that does not, now, how many
select bucket, guest, token, since, until, info from {t}guests
where bucket >= ? and bucket < ? and until > ? and guest not in (x'6e657874', x'72657374')
order by bucket, since, guest
limit ?

-- name: last_number
select token from {t}fences where bucket = ?

-- name: put_number
insert or replace into {t}fences (bucket, token) values (?, ?)

-- name: drop_numbers
delete from {t}fences where token <= ?
