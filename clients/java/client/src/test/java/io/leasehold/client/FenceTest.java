package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The guard row of the README, on SQLite. Its MySQL form needs a server, and is not run. */
class FenceTest extends OnEachBackend {
  private static String[] statements() throws Exception {
    String readme = Files.readString(TestSidecar.root().resolve("clients/java/README.md"));
    Matcher sql = Pattern.compile("```sql\\n(CREATE TABLE.*?)```", Pattern.DOTALL).matcher(readme);
    assertTrue(sql.find(), "the README has no SQL");
    return sql.group(1).split(";");
  }

  @Test
  void aStaleTokenIsRefusedByTheSqlOfTheReadme(@TempDir Path folder) throws Exception {
    String name = newName();
    String[] sql = statements();
    try (Locks locks = sidecar().locks();
        Connection database = DriverManager.getConnection("jdbc:sqlite:" + folder.resolve("db"))) {
      execute(database, sql[0]);
      execute(database, "CREATE TABLE orders (state TEXT)");
      execute(database, "INSERT INTO orders VALUES ('new')");
      database.setAutoCommit(false);

      HeldLock paused = locks.lock(name);
      sidecar().force(name); // the holder does not notice
      try (HeldLock next = locks.lock(name)) {
        assertTrue(write(database, sql[1], next, "by the next"));
        assertTrue(write(database, sql[1], next, "by the next again"));
        assertFalse(write(database, sql[1], paused, "by the paused"));
        assertEquals("by the next again", state(database));
        // Without the fence the stale writer wins.
        execute(database, "UPDATE orders SET state = 'by the paused'");
        assertEquals("by the paused", state(database));
      }
    }
  }

  private static boolean write(Connection database, String guardSql, HeldLock lock, String state)
      throws SQLException {
    try (PreparedStatement guard = database.prepareStatement(guardSql);
        PreparedStatement update = database.prepareStatement("UPDATE orders SET state = ?")) {
      update.setString(1, state);
      update.executeUpdate();
      guard.setString(1, "lockstore||" + lock.resource());
      guard.setLong(2, lock.token());
      if (guard.executeUpdate() == 0) {
        database.rollback();
        return false;
      }
      database.commit();
      return true;
    }
  }

  private static String state(Connection database) throws SQLException {
    try (Statement statement = database.createStatement();
        var rows = statement.executeQuery("SELECT state FROM orders")) {
      rows.next();
      return rows.getString(1);
    }
  }

  private static void execute(Connection database, String sql) throws SQLException {
    try (Statement statement = database.createStatement()) {
      statement.execute(sql);
    }
  }
}
