//! The scripts that lock libraries send to Redis, in a different layout: a front recognises
//! them by their words alone.

/// Release of the documentation of Redis; many libraries send it.
pub const RELEASE: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("del", KEYS[1]) else return 0 end"#;
/// Extension by milliseconds of redislock, redsync and ShedLock.
pub const RENEW: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end"#;
/// Like [`RENEW`], by seconds.
pub const RENEW_SECONDS: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("expire", KEYS[1], ARGV[2]) else return 0 end"#;

/// Unlock of Dapr's lock.redis.
pub const DAPRD_UNLOCK: &str = r#"local v = redis.call("get", KEYS[1])
  if v==false then return -1 end
  if v~=ARGV[1] then return -2 else return redis.call("del", KEYS[1]) end"#;

/// Release of redis-py.
pub const REDIS_PY_RELEASE: &str = r#"local token = redis.call("get", KEYS[1])
  if not token or token ~= ARGV[1] then return 0 end
  redis.call("del", KEYS[1])
  return 1"#;
/// Extension of redis-py: `ARGV[3]` says whether it replaces the TTL or adds to it.
pub const REDIS_PY_EXTEND: &str = r#"local token = redis.call("get", KEYS[1])
  if not token or token ~= ARGV[1] then return 0 end
  local expiration = redis.call("pttl", KEYS[1])
  if not expiration then expiration = 0 end
  if expiration < 0 then return 0 end
  local newttl = ARGV[2]
  if ARGV[3] == "0" then newttl = ARGV[2] + expiration end
  redis.call("pexpire", KEYS[1], newttl)
  return 1"#;
/// Reacquisition of redis-py: it starts the TTL again.
pub const REDIS_PY_REACQUIRE: &str = r#"local token = redis.call("get", KEYS[1])
  if not token or token ~= ARGV[1] then return 0 end
  redis.call("pexpire", KEYS[1], ARGV[2])
  return 1"#;

/// Unlock of redsync.
pub const REDSYNC_UNLOCK: &str = r#"local val = redis.call("get", KEYS[1])
  if val == ARGV[1] then return redis.call("del", KEYS[1])
  elseif val == false then return -1
  else return 0 end"#;
/// Extension of redsync that takes a free lock.
pub const REDSYNC_EXTEND_OR_TAKE: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("pexpire", KEYS[1], ARGV[2])
  elseif redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2], "nx") then return 1
  else return 0 end"#;

/// Obtaining of redislock: `ARGV[2]` is the length of the token.
pub const REDISLOCK_OBTAIN: &str = r#"if redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[3])
    then return redis.status_reply("ok") end
  local offset = tonumber(ARGV[2])
  if redis.call("getrange", KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset)
    then return redis.call("set", KEYS[1], ARGV[1], "px", ARGV[3]) end"#;
/// TTL of redislock.
pub const REDISLOCK_TTL: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1]
  then return redis.call("pttl", KEYS[1]) else return -3 end"#;

/// Acquisition of node-redlock.
pub const NODE_REDLOCK_ACQUIRE: &str = r#"for i, key in ipairs(KEYS) do
    if redis.call("exists", key) == 1 then return 0 end
  end
  for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end
  return #KEYS"#;
/// Extension of node-redlock.
pub const NODE_REDLOCK_EXTEND: &str = r#"for i, key in ipairs(KEYS) do
    if redis.call("get", key) ~= ARGV[1] then return 0 end
  end
  for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end
  return #KEYS"#;
/// Release of node-redlock.
pub const NODE_REDLOCK_RELEASE: &str = r#"local count = 0
  for i, key in ipairs(KEYS) do
    if redis.call("get", key) == ARGV[1] then
      redis.pcall("del", key)
      count = count + 1
    end
  end
  return count"#;

/// Obtaining of Spring Integration.
pub const SPRING_OBTAIN: &str = r#"local lockClientId = redis.call("get", KEYS[1])
  if lockClientId == ARGV[1] then
    redis.call("pexpire", KEYS[1], ARGV[2])
    return true
  elseif not lockClientId then
    redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2])
    return true
  end
  return false"#;
/// Renewal of Spring Integration.
pub const SPRING_RENEW: &str = r#"if (redis.call("get", KEYS[1]) == ARGV[1]) then
    redis.call("pexpire", KEYS[1], ARGV[2])
    return true
  end
  return false"#;
/// Unlock of Spring Integration by `UNLINK`.
pub const SPRING_UNLOCK: &str = r#"local lockClientId = redis.call("get", KEYS[1])
  if lockClientId == ARGV[1] then
    redis.call("unlink", KEYS[1])
    return true
  end
  return false"#;
/// Unlock of Spring Integration by `DEL`.
pub const SPRING_UNLOCK_DEL: &str = r#"local lockClientId = redis.call("get", KEYS[1])
  if lockClientId == ARGV[1] then
    redis.call("del", KEYS[1])
    return true
  end
  return false"#;
/// Unlock of Spring Integration by `UNLINK`, with a message to a channel.
pub const SPRING_UNLOCK_UNLINK_AND_PUBLISH: &str = r#"local lockClientId = redis.call("get", KEYS[1])
  if (lockClientId == ARGV[1] and redis.call("unlink", KEYS[1]) == 1) then
    redis.call("publish", ARGV[2], KEYS[1])
    return true
  end
  return false"#;

/// Lock of node-redlock 3.
pub const NODE_REDLOCK_3_LOCK: &str =
    r#"return redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2])"#;

/// Obtaining of redislock 0.10.
pub const REDISLOCK_10_OBTAIN: &str = r#"local function pexpire(ttl)
    for _, key in ipairs(KEYS) do redis.call("pexpire", key, ttl) end
  end
  local function canOverrideKeys()
    local offset = tonumber(ARGV[2])
    for _, key in ipairs(KEYS) do
      if redis.call("getrange", key, 0, offset-1) ~= string.sub(ARGV[1], 1, offset) then
        return false
      end
    end
    return true
  end
  local setArgs = {}
  for _, key in ipairs(KEYS) do
    table.insert(setArgs, key)
    table.insert(setArgs, ARGV[1])
  end
  if redis.call("msetnx", unpack(setArgs)) ~= 1 then
    if canOverrideKeys() == false then return false end
    redis.call("mset", unpack(setArgs))
  end
  pexpire(ARGV[3])
  return redis.status_reply("ok")"#;
/// TTL of redislock 0.10.
pub const REDISLOCK_10_TTL: &str = r#"local values = redis.call("mget", unpack(KEYS))
  for i, _ in ipairs(KEYS) do
    if values[i] ~= ARGV[1] then return false end
  end
  local minTTL = 0
  for _, key in ipairs(KEYS) do
    local ttl = redis.call("pttl", key)
    if ttl > 0 and (minTTL == 0 or ttl < minTTL) then minTTL = ttl end
  end
  return minTTL"#;
/// Refresh of redislock 0.10.
pub const REDISLOCK_10_REFRESH: &str = r#"local values = redis.call("mget", unpack(KEYS))
  for i, _ in ipairs(KEYS) do
    if values[i] ~= ARGV[1] then return false end
  end
  for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
  return redis.status_reply("ok")"#;
/// Release of redislock 0.10.
pub const REDISLOCK_10_RELEASE: &str = r#"local values = redis.call("mget", unpack(KEYS))
  for i, _ in ipairs(KEYS) do
    if values[i] ~= ARGV[1] then return false end
  end
  redis.call("del", unpack(KEYS))
  return redis.status_reply("ok")"#;
