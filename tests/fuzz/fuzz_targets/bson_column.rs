//! A BSONColumn decodes to values or an error, and to no more values than its bytes can hold.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use query::timeseries::Column;

fuzz_target!(|data: &[u8]| {
    let mut column = Column::new(Bytes::copy_from_slice(data));
    let mut left = 1920 * (data.len() + 1);
    while let Ok(Some(_)) = column.advance() {
        left -= 1;
    }
});
