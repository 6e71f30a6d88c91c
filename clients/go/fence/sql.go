package fence

import (
	"context"
	"database/sql"
)

// Dialect is a kind of SQL database. Its statements are exported for those who do not use
// database/sql: run them in the transaction of the guarded write, before the write.
type Dialect struct {
	// CreateTable makes the table leasehold_fence, unless it exists.
	CreateTable string
	// Guard takes the key and the token. It changes no row if the token is stale,
	// unless Seen is set.
	Guard string
	// Seen, if it is not empty, takes the key and returns the greatest token. It
	// follows Guard, because MySQL counts no row for an equal token either.
	Seen string
}

const upsert = `
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE leasehold_fence.token <= excluded.token`

var (
	// PostgreSQL is for PostgreSQL 9.5 and later.
	PostgreSQL = Dialect{
		CreateTable: `CREATE TABLE IF NOT EXISTS leasehold_fence (resource TEXT PRIMARY KEY, token BIGINT NOT NULL)`,
		Guard:       "INSERT INTO leasehold_fence (resource, token) VALUES ($1, $2)" + upsert,
	}
	// SQLite is for SQLite 3.24 and later.
	SQLite = Dialect{
		CreateTable: `CREATE TABLE IF NOT EXISTS leasehold_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL)`,
		Guard:       "INSERT INTO leasehold_fence (resource, token) VALUES (?, ?)" + upsert,
	}
	// MySQL is for MySQL 5.7 and later, and MariaDB.
	MySQL = Dialect{
		CreateTable: `CREATE TABLE IF NOT EXISTS leasehold_fence
(resource VARBINARY(3072) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB`,
		Guard: `INSERT INTO leasehold_fence (resource, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		// A plain SELECT may read the transaction's old snapshot.
		Seen: `SELECT token FROM leasehold_fence WHERE resource = ? FOR UPDATE`,
	}
)

// Check refuses a smaller token than the greatest one that was seen, and stores it otherwise. It
// belongs into the transaction of the guarded write, before the write: its row stays locked until the
// transaction ends, so no other holder writes meanwhile.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := fence.PostgreSQL.Check(ctx, tx, lock); err != nil {
//		return err
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE orders SET ..."); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// Its error matches [ErrStaleToken], or is the database's. The transaction must then be rolled back.
// Under REPEATABLE READ and SERIALIZABLE, PostgreSQL may refuse a stale token with a
// serialization failure instead.
func (d Dialect) Check(ctx context.Context, tx *sql.Tx, holder Holder) error {
	stale := &StaleTokenError{Key: Key(holder), Token: holder.Token()}
	result, err := tx.ExecContext(ctx, d.Guard, stale.Key, stale.Token)
	if err != nil {
		return err
	}
	if d.Seen != "" {
		if err := tx.QueryRowContext(ctx, d.Seen, stale.Key).Scan(&stale.Seen); err != nil {
			return err
		}
		if stale.Seen > stale.Token {
			return stale
		}
		return nil
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return stale
	}
	return nil
}
