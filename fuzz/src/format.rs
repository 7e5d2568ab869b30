//! The rows of the index as `docs/format/index.md` draws them, written a second time and on their
//! own: what a decoder accepts must come out of these byte for byte.

use secateur_core::Writer;
use secateur_store::{BlobPtr, BlockRecord, FORMAT_VERSION, Header, JournalEntry, Table};

fn write_ptrs(out: &mut Writer, ptrs: &[BlobPtr]) {
    out.u16(u16::try_from(ptrs.len()).expect("a decoder read the count from 16 bits"));
    for ptr in ptrs {
        out.u64(ptr.offset).u32(ptr.len).u32(ptr.class).u32(ptr.generation);
    }
}

/// The body of a row of `blocks`.
pub fn block_record(record: &BlockRecord) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(&record.meta.hash.0).bytes(&record.meta.parent_hash.0);
    out.u64(record.meta.timestamp).u64(record.max_timestamp).u32(record.tx_count);
    for number in record.lens.iter().chain(&record.checksums) {
        out.u32(*number);
    }
    write_ptrs(&mut out, &record.extents);
    out.finish()
}

/// The body of a row of `journal`.
pub fn journal_entry(entry: &JournalEntry) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(entry.height);
    write_ptrs(&mut out, &entry.regions);
    out.finish()
}

/// The body of the header row.
pub fn header_row(header: &Header) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(b"SECATEUR").u32(FORMAT_VERSION).bytes(&header.store_id).u64(header.chain_id);
    out.u8(header.layout as u8);
    let classes = header.classes.classes();
    out.u8(u8::try_from(classes.len()).expect("a decoder read the count from 8 bits"));
    for class in classes {
        out.u32(*class);
    }
    out.finish()
}

/// A body with its seal.
pub fn sealed(table: Table, key: &[u8], body: &[u8]) -> Vec<u8> {
    let crc = crc32c::crc32c(&[table as u8]);
    let crc = crc32c::crc32c_append(crc, key);
    let crc = crc32c::crc32c_append(crc, body);
    [body, &crc.to_be_bytes()].concat()
}
