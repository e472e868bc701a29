//! The example works on each kind of device: by rings in mapped memory, and by messages that are sent.

#[path = "../examples/keyvalue.rs"]
mod keyvalue;

fn values_come_back_as_they_were_put(device: &'static str) {
    let total = keyvalue::run(device, 300).expect("a device");
    let expected: u64 = (0..300).map(|key| key * 97 % (4096 - 24)).sum();
    assert_eq!(total, expected);
}

#[test]
fn values_come_back_as_they_were_put_on_shm() {
    values_come_back_as_they_were_put("shm");
}

#[test]
fn values_come_back_as_they_were_put_on_iwarp() {
    values_come_back_as_they_were_put("iwarp");
}
