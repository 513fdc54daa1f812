alter table linear_sessions add column ticket text;
