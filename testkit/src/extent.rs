//! The extent of the tests.

/// Why tests are skipped that take long or need more than Debian's packages; `None` if they
/// are run.
pub fn left_out() -> Option<&'static str> {
    let all = std::env::var_os("LEASEHOLD_TEST_ALL").is_some();
    (!all).then_some("set LEASEHOLD_TEST_ALL=1, as `make test-all` does")
}
