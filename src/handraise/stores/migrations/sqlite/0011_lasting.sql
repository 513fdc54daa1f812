drop table grants;
alter table rules add column session text;
alter table rules add column owner text;
create index rules_session on rules (session) where session is not null;
alter table asks add column judgement text;
