//! daprd's flags that have no effect here. They are accepted with a warning, so
//! that a daprd's command line can be used for the sidecar unchanged.

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind,
};

/// daprd's flags that need a value, as of daprd 1.18 (`cmd/daprd/options`).
const WITH_VALUE: &str = "actors-disseminate-timeout actors-service allowed-origins \
    app-binding-options-timeout app-max-concurrency config control-plane-address \
    control-plane-namespace control-plane-trust-domain dapr-block-shutdown-duration \
    dapr-http-max-request-size dapr-http-read-buffer-size dapr-internal-grpc-listen-address \
    dapr-internal-grpc-port dapr-public-listen-address dapr-public-port disable-init-endpoints \
    hot-reload-reconcile-interval max-body-size mode \
    placement-host-address profile-port read-buffer-size reminders-service \
    scheduler-host-address scheduler-job-streams sentry-address sentry-request-jwt-audiences";
/// Those that are booleans, which may have a value.
const BOOLEANS: &str = "disable-builtin-k8s-secret-store enable-api-logging enable-mtls \
    enable-profiling";
/// It takes effect as far as `--metrics-port` is given.
const ENABLE_METRICS: &str = "enable-metrics";

/// Arguments that belong to no flag. daprd does not look at them.
const STRAY: &str = "stray";

/// What daprd reads as false.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// Those of daprd's flags that were given and have no effect.
#[derive(Clone, Debug, Default)]
pub struct DaprdFlags {
    given: Vec<&'static str>,
    metrics: Option<bool>,
    stray: Vec<String>,
}

impl DaprdFlags {
    /// Whether `--enable-metrics` allows metrics.
    pub(crate) fn allows_metrics(&self) -> bool {
        self.metrics != Some(false)
    }

    /// A line for each flag that was given and has no effect.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let flags = self.given.iter().map(|flag| {
            format!(
                "--{flag} has no effect here: it is for the daprd behind, give it there; the \
                 sidecar's own limits are fixed"
            )
        });
        let stray = self.stray.iter();
        flags.chain(
            stray.map(|word| format!("{word:?} has no effect here: it belongs to no flag")),
        )
    }
}

impl Args for DaprdFlags {
    fn augment_args(command: Command) -> Command {
        let flag = |flag| Arg::new(flag).long(flag).hide(true).action(ArgAction::Append);
        // Dapr's CLI always passes `--app-max-concurrency -1`.
        let with_value = |name| flag(name).allow_hyphen_values(true);
        let boolean = |name| {
            flag(name).num_args(0..=1).require_equals(true).default_missing_value("true")
        };
        let command = command
            .args(WITH_VALUE.split_whitespace().map(with_value))
            .args(BOOLEANS.split_whitespace().chain([ENABLE_METRICS]).map(boolean));
        command.arg(Arg::new(STRAY).num_args(0..).hide(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DaprdFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let last =
            |flag: &str| matches.get_many::<String>(flag)?.next_back().map(String::as_str);
        let with_value = WITH_VALUE.split_whitespace().filter(|flag| {
            // The sidecar reads component YAML in every mode.
            last(flag).is_some_and(|value| (*flag, value) != ("mode", "standalone"))
        });
        // Turning a feature off needs no warning.
        let booleans = BOOLEANS
            .split_whitespace()
            .filter(|flag| last(flag).is_some_and(|value| !FALSE.contains(&value)));
        let metrics = last(ENABLE_METRICS).map(|value| !FALSE.contains(&value));
        let mut given: Vec<_> = with_value.chain(booleans).collect();
        given.sort_unstable();
        let stray: Vec<_> = matches.get_many::<String>(STRAY).into_iter().flatten().collect();
        // Dapr's CLI replaces --scheduler-host-address by an empty argument for
        // runtimes without it, and leaves its value. Any other argument without a
        // flag is a mistake.
        if let Some(mistaken) = stray.first().filter(|first| !first.is_empty()) {
            let message = format!("unexpected argument '{mistaken}' found");
            // Otherwise the usage of `leasehold` would be shown.
            let usage = "leasehold sidecar [OPTIONS]";
            let mut command = Command::new("leasehold sidecar").override_usage(usage);
            return Err(command.error(ErrorKind::UnknownArgument, message));
        }
        let stray = stray.into_iter().filter(|word| !word.is_empty()).cloned().collect();
        Ok(Self { given, metrics, stray })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Parser};

    use crate::SidecarArgs;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: SidecarArgs,
        /// A flag of the whole program.
        #[arg(long = "log-level")]
        _log_level: Option<String>,
    }

    fn parse(arguments: &[&str]) -> Result<SidecarArgs, clap::Error> {
        let arguments = ["sidecar"].iter().chain(arguments);
        Ok(Cli::try_parse_from(arguments)?.args)
    }

    fn warnings(arguments: &[&str]) -> Vec<String> {
        parse(arguments).unwrap().daprd_flags.warnings().collect()
    }

    #[test]
    fn the_command_line_of_a_daprd_is_taken_with_warnings() {
        let given = warnings(&[
            "--app-id=a",
            "--mode",
            "kubernetes",
            "--config",
            "a.yaml",
            "--config=b.yaml",
            "--enable-metrics=true",
            "--enable-mtls",
            "--max-body-size",
            "8Mi",
            "--placement-host-address",
            "localhost:50005",
        ]);
        let flags: Vec<_> =
            given.iter().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
        let expected = [
            "--config",
            "--enable-mtls",
            "--max-body-size",
            "--mode",
            "--placement-host-address",
        ];
        assert_eq!(flags, expected);
        assert!(given.iter().all(|line| line.contains("has no effect here: ")), "{given:?}");
    }

    /// The CLI's `getArgs` makes them for `dapr run` without options: the default
    /// `-1` is a separate argument, which was once refused.
    #[test]
    fn the_flags_that_the_cli_always_passes_are_taken() {
        let line = [
            "--app-id",
            "orders",
            "--app-port",
            "0",
            "--dapr-http-port",
            "37001",
            "--dapr-grpc-port",
            "37002",
            "--profile-port",
            "-1",
            "--metrics-port",
            "37003",
            "--dapr-internal-grpc-port",
            "37004",
            "--config",
            "/root/.dapr/config.yaml",
            "--app-protocol",
            "http",
            "--log-level",
            "info",
            "--app-max-concurrency",
            "-1",
            "--placement-host-address",
            "localhost:50005",
            "--resources-path",
            "/root/.dapr/components",
            "--app-ssl",
            "--max-body-size",
            "-1",
            "--read-buffer-size",
            "4Ki",
            "--scheduler-host-address",
            "localhost:50006",
            "--enable-mtls",
            "--sentry-address",
            "localhost:50001",
        ];
        let given = warnings(&line);
        assert_eq!(given.len(), 10, "{given:?}");
        let metrics = parse(&line).unwrap().metrics_address();
        assert_eq!(metrics, Some("127.0.0.1:37003".parse().unwrap()));
    }

    fn metrics(arguments: &[&str]) -> Option<String> {
        Some(parse(arguments).unwrap().metrics_address()?.to_string())
    }

    #[test]
    fn the_port_that_injectors_pass_is_no_port_of_ours() {
        assert_eq!(metrics(&["--metrics-port", "9090"]), None);
        assert_eq!(metrics(&["--metrics-port", "9090", "--enable-metrics=true"]), None);
        let warning = parse(&["--metrics-port=9090"]).unwrap().metrics_warning().unwrap();
        assert!(warning.contains("daprd's default"), "{warning}");
        let nine = metrics(&["--metrics-port=9464", "--enable-metrics"]);
        assert_eq!(nine.as_deref(), Some("127.0.0.1:9464"));
    }

    #[test]
    fn metrics_that_are_turned_off_are_off() {
        for off in super::FALSE {
            let off = format!("--enable-metrics={off}");
            assert_eq!(metrics(&["--metrics-port=9464", &off]), None);
        }
        let last = ["--metrics-port=9464", "--enable-metrics=false", "--enable-metrics=true"];
        assert!(metrics(&last).is_some());
    }

    /// For a runtime that it believes to be older than 1.14, the CLI replaces the
    /// flag by an empty argument and leaves its value: `dapr run` once ended with
    /// exit code 64.
    #[test]
    fn what_the_cli_leaves_of_a_flag_is_taken() {
        let given =
            warnings(&["--app-id", "orders", "", "localhost:50006", "--log-level", "info"]);
        assert_eq!(given, ["\"localhost:50006\" has no effect here: it belongs to no flag"]);
        assert!(parse(&["--app-id", "orders", ""]).is_ok());
        for mistaken in [&["orders"][..], &["orders", ""], &["--app-id", "orders", "etcd"]] {
            let refused = parse(mistaken).unwrap_err();
            assert!(refused.to_string().contains("unexpected argument"), "{refused}");
        }
    }

    /// Every flag of daprd 1.18, but those that print something or wait for another
    /// daprd and then exit: `version`, `build-info` and `wait`.
    #[test]
    fn every_flag_of_daprd_is_taken() {
        let command = SidecarArgs::augment_args(clap::Command::new("sidecar"));
        let known = |flag: &str| {
            command.get_arguments().any(|arg| {
                arg.get_long() == Some(flag)
                    || arg.get_all_aliases().unwrap_or_default().contains(&flag)
            })
        };
        let of_daprd = "actors-disseminate-timeout actors-service allowed-origins \
            app-binding-options-timeout app-channel-address app-health-check-path \
            app-health-probe-interval app-health-probe-timeout app-health-threshold app-id \
            app-max-concurrency app-port app-protocol app-ssl components-path config \
            control-plane-address control-plane-namespace control-plane-trust-domain \
            dapr-block-shutdown-duration dapr-graceful-shutdown-seconds dapr-grpc-port \
            dapr-http-max-request-size dapr-http-port dapr-http-read-buffer-size \
            dapr-internal-grpc-listen-address dapr-internal-grpc-port dapr-listen-addresses \
            dapr-public-listen-address dapr-public-port disable-builtin-k8s-secret-store \
            disable-init-endpoints enable-api-logging enable-app-health-check enable-metrics \
            enable-mtls enable-profiling hot-reload-reconcile-interval max-body-size \
            metrics-listen-address metrics-port mode placement-host-address profile-port \
            read-buffer-size reminders-service resources-path scheduler-host-address \
            scheduler-job-streams sentry-address sentry-request-jwt-audiences \
            unix-domain-socket";
        let missing: Vec<_> = of_daprd.split_whitespace().filter(|flag| !known(flag)).collect();
        assert_eq!(missing, [""; 0], "log-level and log-as-json are for all commands");
    }

    #[test]
    fn what_happens_anyway_is_not_warned_of() {
        assert_eq!(warnings(&["--mode", "standalone", "--enable-metrics=false"]), [""; 0]);
        assert_eq!(warnings(&[]), [""; 0]);
    }

    #[test]
    fn a_flag_that_daprd_does_not_have_is_refused() {
        assert!(parse(&["--moed", "standalone"]).is_err());
    }
}
