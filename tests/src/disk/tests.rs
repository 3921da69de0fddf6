use std::process::Command;

use rand::SeedableRng;

use super::*;

/// Runs a line of Python on the unreliable disk.
fn run(disk: &Disk, plan: Plan, script: &str) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(&disk.root).envs(disk.environment(plan).unwrap());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn disk() -> (tempfile::TempDir, Disk) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let disk = Disk::below(&dir.path().join("data"), &dir.path().join("notes")).unwrap();
    (dir, disk)
}

/// Cuts the power forty times after the same program: synced data is always there, other data is sometimes lost.
#[test]
fn synced_bytes_stay_and_others_may_go() {
    let mut fates = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let (_dir, disk) = disk();
        let script = "import os\n\
            fd = os.open('f', os.O_CREAT | os.O_WRONLY)\n\
            os.write(fd, b'a' * 3000); os.fsync(fd)\n\
            d = os.open('.', os.O_RDONLY); os.fsync(d)\n\
            os.write(fd, b'b' * 3000)\n\
            os.pwrite(fd, b'c' * 600, 100)\n";
        run(&disk, Plan::default(), script);
        disk.lose_power(&mut StdRng::seed_from_u64(seed)).unwrap();
        let after = fs::read(disk.root.join("f")).unwrap();
        assert!(after.len() >= 3000, "synced bytes are gone");
        for (at, byte) in after.iter().enumerate() {
            let may = match at {
                100..700 => b"ac".as_slice(),
                0..3000 => b"a",
                _ => b"b\0",
            };
            assert!(may.contains(byte), "seed {seed}: {byte} at {at}");
        }
        let overwritten = after.get(100..700).unwrap().contains(&b'c');
        fates.insert((after.len() > 3000, overwritten));
    }
    assert!(fates.len() >= 3, "the dice have one side: {fates:?}");
}

#[test]
fn entries_go_in_their_order_unless_their_directory_was_synced() {
    let mut fates = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let (_dir, disk) = disk();
        let script = "import os\n\
            open('old', 'w').write('1'); open('kept', 'w').write('2')\n\
            d = os.open('.', os.O_RDONLY); os.fsync(d)\n\
            open('new', 'w').write('3')\n\
            os.rename('new', 'old')\n\
            os.unlink('kept')\n";
        run(&disk, Plan::default(), script);
        disk.lose_power(&mut StdRng::seed_from_u64(seed)).unwrap();
        let there = |name: &str| disk.root.join(name).exists();
        assert!(there("old"), "seed {seed}: a synced entry is gone");
        assert!(!there("new") || there("kept"), "seed {seed}: out of order");
        fates.insert((there("new"), there("kept")));
    }
    assert_eq!(fates.len(), 3, "{fates:?}");
}

#[test]
fn failures_come_as_planned() {
    let (_dir, disk) = disk();
    let script = "import os\n\
        fd = os.open('f', os.O_CREAT | os.O_WRONLY)\n\
        seen = set()\n\
        for i in range(400):\n\
        \x20   try: seen.add('whole' if os.write(fd, b'x' * 100) == 100 else 'short')\n\
        \x20   except OSError as e: seen.add(e.errno)\n\
        \x20   try: os.fsync(fd)\n\
        \x20   except OSError as e: seen.add('sync %d' % e.errno)\n\
        print(sorted(map(str, seen)))\n";
    let plan =
        Plan { seed: 3, short: 8, failed_write: 9, full: 10, failed_sync: 11, ..Plan::default() };
    assert_eq!(run(&disk, plan, script).trim(), "['28', '5', 'short', 'sync 5', 'whole']");
    let lies = Plan { lying_sync: 1, ..Plan::default() };
    disk.forget().unwrap();
    run(&disk, lies, "import os; fd = os.open('g', 65); os.write(fd, b'y'); os.fsync(fd)");
    let notes = notes::read(&disk.notes.join("notes")).unwrap();
    assert!(notes.iter().all(|note| note.kind != Kind::Sync), "{notes:?}");
}
