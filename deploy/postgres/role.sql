-- What the role that sidecars connect as may do, and nothing else. Whoever has it can approve: it is as good as the file of
-- a database that is one. But it cannot change what the audit has, or the schema.
--
-- Two roles: `countersign_owner` owns the tables and migrates them; `countersign` serves. Once:
--
--     createuser --pwprompt countersign_owner
--     createuser --pwprompt countersign
--     createdb --owner=countersign_owner --encoding=UTF8 --template=template0 countersign
--
-- and then, and after each new version's migration again (it may be run any number of times):
--
--     countersign migrate --postgres postgres://countersign_owner@HOST/countersign --postgres-password-file owner.password
--     psql --host=HOST --username=countersign_owner --dbname=countersign --set=ON_ERROR_STOP=1 --file=role.sql
--
-- The sidecars have `migrate = false` in `[store.postgres]`: a schema that is not theirs is then refused, and named.

BEGIN;

-- By anybody else, or with the tables elsewhere, half of this would be done, and said to be.
DO $$ BEGIN
    IF current_schema() IS DISTINCT FROM 'public' OR to_regclass('public.schema_migrations') IS NULL THEN
        RAISE EXCEPTION 'the tables are not in the schema public: migrate first, or change this file to name their schema';
    END IF;
    IF NOT pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'MEMBER') THEN
        RAISE EXCEPTION 'to be run by the owner of the database';
    END IF;
END $$;

-- Nobody else: by default everybody may connect to a new database, and make temporary tables in it.
DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()); END $$;
DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO countersign', current_database()); END $$;

-- To name what is in the schema, but not to make anything there, which up to Postgres 14 everybody may by default.
REVOKE CREATE ON SCHEMA public FROM countersign, PUBLIC;
GRANT USAGE ON SCHEMA public TO countersign;
DO $$ BEGIN
    IF has_schema_privilege('countersign', 'public', 'CREATE') THEN
        RAISE EXCEPTION 'everybody may make things in the schema public: have a superuser run REVOKE CREATE ON SCHEMA public FROM PUBLIC';
    END IF;
END $$;

-- What an earlier version was granted and this one does not need.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM countersign, PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM countersign, PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM countersign, PUBLIC;

-- Which migrations were applied: looked at on every start. The lock beside it is for who migrates.
GRANT SELECT ON schema_migrations TO countersign;

-- Questions and what became of them: asked, decided, used up; emptied and deleted once they are over ([retention]). What
-- belongs to an approval goes with it, for which nobody needs a right to delete.
GRANT SELECT, INSERT, UPDATE, DELETE ON approvals TO countersign;
-- What people answered is never changed.
GRANT SELECT, INSERT ON approval_decisions TO countersign;
-- Who may find which approval, with the state that it is found by.
GRANT SELECT, INSERT, UPDATE ON approval_audience TO countersign;
-- Sealed arguments are kept, and erased; never changed.
GRANT SELECT, INSERT, DELETE ON approval_arguments TO countersign;
-- Which request stands for which approval.
GRANT SELECT, INSERT ON request_ids TO countersign;

-- What ran: started, reported, unknown; deleted once it is over.
GRANT SELECT, INSERT, UPDATE, DELETE ON executions TO countersign;
-- Agents that stopped for people.
GRANT SELECT, INSERT, UPDATE, DELETE ON waits TO countersign;

-- When somebody who may answer was last seen.
GRANT SELECT, INSERT, UPDATE ON approver_presence TO countersign;

-- The audit is added to and read. It is neither changed nor shortened.
GRANT SELECT, INSERT ON audit_records TO countersign;
-- Only where `retention.audit_records` is a duration: rows are locked before they are deleted, which takes a right to change
-- something in them; that is the one column that nobody can give a value of their own.
-- GRANT DELETE, UPDATE (position) ON audit_records TO countersign;

-- The audit's seals, tree and checkpoints are added to. The log's own row says how far they go.
GRANT SELECT, INSERT ON audit_seals, audit_nodes, audit_checkpoints TO countersign;
GRANT SELECT, INSERT, UPDATE ON audit_log TO countersign;

-- The key ids of server secrets are added, and never forgotten.
GRANT SELECT, INSERT ON keys TO countersign;
-- Blocks are read.
GRANT SELECT ON blocks TO countersign;

-- The operations that are one round trip. They run with the rights of who calls them. The audit's positions are an identity
-- of its table, for which no right to a sequence is needed.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO countersign;

COMMIT;
