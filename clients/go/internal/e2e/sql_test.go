package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// database is a database that has both tables.
type database struct {
	*sql.DB
	dialect fence.Dialect
}

func open(t *testing.T, start func() (*sql.DB, error), dialect fence.Dialect) database {
	t.Helper()
	db, err := start()
	skipMissing(t, err)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		dialect.CreateTable, `CREATE TABLE IF NOT EXISTS account (id VARCHAR(200) PRIMARY KEY, balance INTEGER NOT NULL)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return database{db, dialect}
}

// account makes a row with a balance of 100.
func (d database) account(t *testing.T) account {
	t.Helper()
	id := fresh(t)
	if _, err := d.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO account VALUES ('%s', 100)`, id)); err != nil {
		t.Fatal(err)
	}
	update := func(balance int) string {
		return fmt.Sprintf(`UPDATE account SET balance = %d WHERE id = '%s'`, balance, id)
	}
	return account{
		read: func(t *testing.T) (balance int) {
			t.Helper()
			if err := d.QueryRowContext(t.Context(), `SELECT balance FROM account WHERE id = '`+id+`'`).Scan(&balance); err != nil {
				t.Fatal(err)
			}
			return balance
		},
		write: func(t *testing.T, balance int) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), update(balance)); err != nil {
				t.Fatal(err)
			}
		},
		guarded: func(holder fence.Holder, balance int) error {
			tx, err := d.Begin()
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := d.dialect.Check(context.Background(), tx, holder); err != nil {
				return err
			}
			if _, err := tx.Exec(update(balance)); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

func testSQL(t *testing.T, start func() (*sql.DB, error), dialect fence.Dialect) {
	t.Helper()
	d := open(t, start, dialect)
	onEach(t, func(t *testing.T, s *stage.Stage, locks *leasehold.Locks) {
		staleWriterLoses(t, s, locks, d.account(t))
		staleWriterWins(t, s, locks, d.account(t))
	})
}

func TestAStaleTokenIsRefusedByPostgreSQL(t *testing.T) { testSQL(t, postgres, fence.PostgreSQL) }

func TestAStaleTokenIsRefusedBySQLite(t *testing.T) { testSQL(t, sqlite, fence.SQLite) }

func TestAStaleTokenIsRefusedByMySQL(t *testing.T) { testSQL(t, mysql, fence.MySQL) }

// A transaction that began before the newer one committed still sees the newer token.
func testOldSnapshot(t *testing.T, start func() (*sql.DB, error), dialect fence.Dialect) {
	t.Helper()
	d := open(t, start, dialect)
	name, a := fresh(t), d.account(t)
	ticket := func(token int64) fence.Ticket {
		return fence.Ticket{LockStore: stage.Store, Lock: name, FencingToken: token}
	}
	if err := a.guarded(ticket(1), 101); err != nil {
		t.Fatal(err)
	}
	old, err := d.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback() }()
	var token int64
	if err := old.QueryRowContext(t.Context(), `SELECT MAX(token) FROM leasehold_fence`).Scan(&token); err != nil {
		t.Fatal(err)
	}
	if err := a.guarded(ticket(3), 103); err != nil {
		t.Fatal(err)
	}
	// PostgreSQL may also say that it cannot serialize.
	if err := d.dialect.Check(t.Context(), old, ticket(2)); err == nil {
		t.Error("the stale token was accepted")
	}
}

func TestAnOldSnapshotDoesNotLetAStaleTokenIntoPostgreSQL(t *testing.T) {
	testOldSnapshot(t, postgres, fence.PostgreSQL)
}

func TestAnOldSnapshotDoesNotLetAStaleTokenIntoMySQL(t *testing.T) {
	testOldSnapshot(t, mysql, fence.MySQL)
}

// A stale writer waits for the open transaction of the newer one, and is then refused.
func testOpenTransaction(t *testing.T, start func() (*sql.DB, error), dialect fence.Dialect) {
	t.Helper()
	d := open(t, start, dialect)
	name, a := fresh(t), d.account(t)
	newer, err := d.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = newer.Rollback() }()
	if err := d.dialect.Check(t.Context(), newer, fence.Ticket{LockStore: stage.Store, Lock: name, FencingToken: 2}); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- a.guarded(fence.Ticket{LockStore: stage.Store, Lock: name, FencingToken: 1}, 1) }()
	select {
	case err := <-result:
		t.Errorf("the stale writer did not wait: %v", err)
		return
	case <-time.After(200 * time.Millisecond):
	}
	if err := newer.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, fence.ErrStaleToken) {
		t.Errorf("the stale write: %v", err)
	}
}

func TestAStaleWriterWaitsForAnOpenTransactionOfPostgreSQL(t *testing.T) {
	testOpenTransaction(t, postgres, fence.PostgreSQL)
}

func TestAStaleWriterWaitsForAnOpenTransactionOfMySQL(t *testing.T) {
	testOpenTransaction(t, mysql, fence.MySQL)
}

func TestAStaleWriterWaitsForAnOpenTransactionOfSQLite(t *testing.T) {
	testOpenTransaction(t, sqlite, fence.SQLite)
}
