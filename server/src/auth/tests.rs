//! Tests the limit on concurrent logins.

use futures_util::FutureExt;

use super::{ATTEMPTS_MAX, Access};

#[test]
fn so_many_logins_are_worked_on_and_the_next_one_waits_for_its_turn() {
    let access = Access::off();
    let mut turns: Vec<_> =
        (0..ATTEMPTS_MAX).map(|_| access.turn().now_or_never().unwrap()).collect();
    assert!(access.turn().now_or_never().is_none());
    turns.pop();
    assert!(access.turn().now_or_never().is_some());
}
