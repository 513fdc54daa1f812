drop table grants;
alter table rules add column session text collate "C";
alter table rules add column owner text collate "C";
create index rules_session on rules (session) where session is not null;
alter table asks add column judgement text;
