//! What an operation asks of the run-time pool. (to come)
