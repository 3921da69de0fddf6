//! Random logins: only a correct proof authenticates a client.
//!
//! `SEED=n` replays a run, `LOGINS=n` changes the number of connections.

use std::env;

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

#[test]
fn nobody_is_let_in_but_by_the_right_proof() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("SEED").unwrap_or(20_261_116);
    let connections = number("LOGINS").unwrap_or(20_000);
    println!("SEED={seed} LOGINS={connections}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut begun, mut let_in) = (0, 0);
    for _ in 0..connections {
        let mut bytes = vec![0; random.random_range(..60)];
        random.fill_bytes(&mut bytes);
        let walked = fuzz::walk(&bytes);
        begun += walked.begun;
        let_in += walked.let_in;
    }
    assert!(begun > let_in && let_in > 100, "{begun} begun, {let_in} let in: too few to tell");
}
