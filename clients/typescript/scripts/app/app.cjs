// The same package from CommonJS.

const { Locks } = require("@leasehold/client");

async function main() {
  const locks = new Locks({ store: "lockstore" });
  await locks.with("order-1", (lock) => {
    console.log(`token ${lock.token}`);
  });
}

main();
