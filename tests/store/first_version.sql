-- A dump of a store that the first version made, before there were revisions. Kept for ever.
BEGIN TRANSACTION;
CREATE TABLE approvals (
	id TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	done_at BIGINT, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE attempts (
	id TEXT NOT NULL, 
	resource TEXT NOT NULL, 
	action TEXT NOT NULL, 
	intent_at BIGINT NOT NULL, 
	outcome TEXT, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE audit (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at BIGINT NOT NULL, 
	resource TEXT, 
	value TEXT NOT NULL
);
INSERT INTO "audit" VALUES(1,1772366400000000,'aws:000012345678:eu-west-1:instance:i-01','{"at":"2026-03-01T12:00:00Z","kind":"intent","actor":"reaper","because":"written by the first version","resource":{"cloud":"aws","account":"000012345678","place":"eu-west-1","kind":"instance","native":"i-01"},"evidence":{},"seq":0}');
CREATE TABLE facts (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE ledgers (
	resource TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (resource)
);
CREATE TABLE listings (
	place TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (place)
);
CREATE TABLE marks (
	resource TEXT NOT NULL, 
	action TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (resource, action)
);
CREATE TABLE observations (
	resource TEXT NOT NULL, 
	boot_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	boot_received_at BIGINT NOT NULL, 
	ended_at BIGINT NOT NULL, 
	verified BOOLEAN NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (resource, boot_id, seq)
);
INSERT INTO "observations" VALUES('aws:000012345678:eu-west-1:instance:i-01','boot-1',60000,1772366400000000,1772366400000000,1,'{"resource":{"cloud":"aws","account":"000012345678","place":"eu-west-1","kind":"instance","native":"i-01"},"boot_id":"boot-1","seq":60000,"up_s":60.0,"window_s":60.0,"started_at":"2026-03-01T11:59:00Z","ended_at":"2026-03-01T12:00:00Z","received_at":"2026-03-01T12:00:00Z","verified":true,"sampler":"nvml","gpus":[{"uuid":"GPU-1","peak":0.0,"covered_s":60.0}],"totals":{},"hook_installed":false}');
CREATE TABLE plans (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	value TEXT NOT NULL, 
	UNIQUE (id)
);
CREATE TABLE reaper_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "reaper_schema" VALUES(1);
CREATE TABLE seen_protections (
	resource TEXT NOT NULL, 
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (resource, name)
);
CREATE TABLE snoozes (
	id TEXT NOT NULL, 
	until BIGINT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "snoozes" VALUES('s1',1772370000000000,'{"id":"s1","resource":{"cloud":"aws","account":"000012345678","place":"eu-west-1","kind":"instance","native":"i-01"},"until":"2026-03-01T13:00:00Z","who":"ada","reason":"demo","created_at":"2026-03-01T12:00:00Z"}');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE voices (
	resource TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (resource)
);
INSERT INTO "voices" VALUES('aws:000012345678:eu-west-1:instance:i-01','{"resource":{"cloud":"aws","account":"000012345678","place":"eu-west-1","kind":"instance","native":"i-01"},"boot_id":"boot-1","first_at":"2026-03-01T12:00:00Z","boot_since":"2026-03-01T12:00:00Z","last_at":"2026-03-01T12:00:00Z","retired":[]}');
CREATE INDEX observations_by_end ON observations (ended_at);
CREATE INDEX snoozes_by_end ON snoozes (until);
CREATE INDEX attempts_by_outcome ON attempts (outcome, intent_at);
CREATE INDEX attempts_by_resource ON attempts (resource, intent_at);
CREATE INDEX attempts_by_action ON attempts (action, intent_at);
CREATE INDEX audit_by_moment ON audit (at);
CREATE INDEX audit_by_resource ON audit (resource, seq);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',1);
COMMIT;
