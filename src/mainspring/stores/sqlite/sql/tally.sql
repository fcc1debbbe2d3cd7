-- tally: exact numbers by a value and state. {value}, {at}, {table} and {where} are written by tally.py: names of
-- columns and question marks only.

-- name: tally
select {value}, state, count(*), min({at}), max({at})
from {t}{table}
where {where}
group by 1, 2
