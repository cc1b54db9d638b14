//! When a model may start: the scheduler, a state machine of events in and effects out.
