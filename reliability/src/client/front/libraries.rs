//! What lock libraries send: the scripts do the same as theirs, and a front recognises them
//! as theirs.

/// How a library takes a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// `SET key value NX PX milliseconds`.
    Milliseconds,
    /// `SET key value EX seconds NX`.
    Seconds,
    /// A script with the value and the TTL.
    Script(&'static str),
    /// A script with the value, its length and the TTL.
    WithLength(&'static str),
}

/// How a library renews a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renew {
    Never,
    /// `SET key value XX PX milliseconds`.
    Set,
    /// A script with the value and the TTL.
    Script(&'static str),
    /// The same, and `1` so that the TTL is not added to what is left.
    Replacing(&'static str),
}

/// What a script that releases a lock returns if the value does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The same whether another value holds it or none.
    Same,
    /// This if another value holds it, and -1 if none does.
    Tells { held: i64 },
}

/// How a library finds its scripts on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calling {
    /// `EVAL` each time.
    Text,
    /// `EVALSHA`, and `EVAL` if that is not known.
    Digest,
    /// `EVALSHA`, and `SCRIPT LOAD` before it is called again if it is not known.
    Loading,
}

/// A library, by its commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library {
    pub(super) take: Take,
    pub(super) renew: Renew,
    pub(super) release: &'static str,
    pub(super) missing: Missing,
    pub(super) calling: Calling,
    /// Whether it releases what it did not get.
    pub(super) releases_refused: bool,
    pub(super) is_resp3: bool,
}

/// Dapr's lock.redis, redis-py, redsync, redislock, node-redlock, Spring Integration, ShedLock.
pub(super) const LIBRARIES: [Library; 7] = [
    Library {
        take: Take::Seconds,
        renew: Renew::Never,
        release: "local v = redis.call('GET', KEYS[1])
            if v == false then return -1 end
            if v ~= ARGV[1] then return -2 else return redis.call('DEL', KEYS[1]) end",
        missing: Missing::Tells { held: -2 },
        calling: Calling::Text,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Replacing(
            "local token = redis.call('GET', KEYS[1])
            if not token or token ~= ARGV[1] then return 0 end
            local expiration = redis.call('PTTL', KEYS[1])
            if not expiration then expiration = 0 end
            if expiration < 0 then return 0 end
            local newttl = ARGV[2]
            if ARGV[3] == '0' then newttl = ARGV[2] + expiration end
            redis.call('PEXPIRE', KEYS[1], newttl)
            return 1",
        ),
        release: "local token = redis.call('GET', KEYS[1])
            if not token or token ~= ARGV[1] then return 0 end
            redis.call('DEL', KEYS[1])
            return 1",
        missing: Missing::Same,
        calling: Calling::Loading,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Script(COMPARE_AND_EXPIRE),
        release: "local val = redis.call('GET', KEYS[1])
            if val == ARGV[1] then return redis.call('DEL', KEYS[1])
            elseif val == false then return -1 else return 0 end",
        missing: Missing::Tells { held: 0 },
        calling: Calling::Digest,
        releases_refused: true,
        is_resp3: true,
    },
    Library {
        take: Take::WithLength(
            "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
                return redis.status_reply('OK')
            end
            local offset = tonumber(ARGV[2])
            if redis.call('GETRANGE', KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset)
            then return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) end",
        ),
        renew: Renew::Script(COMPARE_AND_EXPIRE),
        release: COMPARE_AND_DELETE,
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Script(
            "for i, key in ipairs(KEYS) do
                if redis.call('EXISTS', key) == 1 then return 0 end
            end
            for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
            return #KEYS",
        ),
        renew: Renew::Script(
            "for i, key in ipairs(KEYS) do
                if redis.call('GET', key) ~= ARGV[1] then return 0 end
            end
            for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
            return #KEYS",
        ),
        release: "local count = 0
            for i, key in ipairs(KEYS) do
                if redis.call('GET', key) == ARGV[1] then
                    redis.pcall('DEL', key)
                    count = count + 1
                end
            end
            return count",
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: true,
        is_resp3: false,
    },
    Library {
        take: Take::Script(SPRING_TAKES),
        renew: Renew::Script(SPRING_RENEWS),
        release: SPRING_RELEASES,
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Set,
        release: COMPARE_AND_DELETE,
        missing: Missing::Same,
        calling: Calling::Text,
        releases_refused: false,
        is_resp3: false,
    },
];

const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

const SPRING_TAKES: &str = "local lockClientId = redis.call('GET', KEYS[1])
    if lockClientId == ARGV[1] then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return true
    elseif not lockClientId then
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
        return true
    end
    return false";
const SPRING_RENEWS: &str = "if (redis.call('GET', KEYS[1]) == ARGV[1]) then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return true
    end
    return false";
const SPRING_RELEASES: &str = "local lockClientId = redis.call('GET', KEYS[1])
    if lockClientId == ARGV[1] then
        redis.call('UNLINK', KEYS[1])
        return true
    end
    return false";
