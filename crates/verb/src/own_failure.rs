//! Exit statuses of failures that are Plimsoll's own and not the program's, as `env` and `timeout` have them.

use crate::report::ErrorReport;

pub(crate) const OWN_FAILURE: u8 = 125;
pub const NOT_EXECUTABLE: u8 = 126;
pub const NOT_FOUND: u8 = 127;

/// The failure with its status. Failures to start the program carry 126 and 127 already.
pub fn own_failure(error: ErrorReport) -> ErrorReport {
    match error.status() {
        NOT_EXECUTABLE | NOT_FOUND => error,
        _ => error.with_status(OWN_FAILURE),
    }
}
