-- One table for many sidecars: what each tells the others, and the operations that are one round trip.

-- When a row last changed in a way that is told, by the store's time, and what finds the rows since then. Erasing what a
-- person is shown is no change. What is told of a row stands in the index.
ALTER TABLE approvals ADD COLUMN update_time BIGINT NOT NULL DEFAULT 0;
CREATE INDEX approvals_by_update ON approvals (update_time, id) INCLUDE (version);

-- The store's time, in microseconds since the Unix epoch; an argument that is given replaces it (tests move time so).
CREATE FUNCTION store_now(given BIGINT) RETURNS BIGINT
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    RETURN coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT);
