package leasehold.redisfront;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisClientConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

/** The Redis clients below Spring Data. Neither repeats a command whose connection was reset. */
record Connections(String name, Function<InetSocketAddress, RedisConnectionFactory> open) {
  /** Longer than a busy machine needs for an answer. */
  private static final Duration PATIENCE = Duration.ofSeconds(15);

  static Connections lettuce() {
    String version = version(io.lettuce.core.RedisClient.class);
    return new Connections("Lettuce " + version, Connections::openLettuce);
  }

  static Connections jedis() {
    String version = version(redis.clients.jedis.Jedis.class);
    return new Connections("Jedis " + version, Connections::openJedis);
  }

  private static RedisConnectionFactory openLettuce(InetSocketAddress address) {
    var client = LettuceClientConfiguration.builder().commandTimeout(PATIENCE).build();
    var factory = new LettuceConnectionFactory(configuration(address), client);
    factory.afterPropertiesSet();
    factory.start();
    return factory;
  }

  private static RedisConnectionFactory openJedis(InetSocketAddress address) {
    var client = JedisClientConfiguration.builder().readTimeout(PATIENCE).build();
    var factory = new JedisConnectionFactory(configuration(address), client);
    factory.afterPropertiesSet();
    factory.start();
    return factory;
  }

  private static RedisStandaloneConfiguration configuration(InetSocketAddress address) {
    return new RedisStandaloneConfiguration(address.getHostString(), address.getPort());
  }

  static long pttl(RedisConnectionFactory factory, String key) {
    return new StringRedisTemplate(factory).getExpire(key, TimeUnit.MILLISECONDS);
  }

  /** The version in the manifest of a class's archive, or in the archive's name. */
  static String version(Class<?> from) {
    String version = from.getPackage().getImplementationVersion();
    if (version != null) {
      return version.replaceAll("(\\.RELEASE)?(/.*)?$", "");
    }
    String path = from.getProtectionDomain().getCodeSource().getLocation().getPath();
    return path.replaceAll(".*-(\\d[^/]*)\\.jar", "$1");
  }
}
