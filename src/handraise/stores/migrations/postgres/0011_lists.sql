create index sessions_newest on sessions (created_at desc, id);
create index sessions_unclaimed on sessions (id) where worker is null and state is not null and state <> 'done';
create index checkpoints_asked on checkpoints (asked_at, id);
create index checkpoints_state on checkpoints (state, asked_at, id);
