-- What waits for people: how many, and since when. Only what is pending is in it, so that consuming does not touch it, and
-- in the order of asking, so that a new question is at its end.
CREATE INDEX approvals_pending ON approvals (create_time, open_until) WHERE state = 'pending';
