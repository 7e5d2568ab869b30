//! The rows of the index as `docs/format/index.md` draws them, written a second time and on their
//! own: what a decoder accepts must come out of these byte for byte.

use secateur_core::Writer;
use secateur_store::{
    Blob, BlobPtr, FORMAT_VERSION, Group, Header, JournalEntry, Place, RunRecord, Table,
};

fn write_ptrs(out: &mut Writer, ptrs: &[BlobPtr]) {
    out.u16(u16::try_from(ptrs.len()).expect("a decoder read the count from 16 bits"));
    for ptr in ptrs {
        out.u64(ptr.offset).u32(ptr.len).u32(ptr.class).u32(ptr.generation);
    }
}

/// The body of a row of `blocks`.
pub fn group(group: &Group) -> Vec<u8> {
    let mut out = Writer::new();
    let first = group.records.first().expect("a row has a record");
    out.u16(u16::try_from(group.records.len()).expect("a decoder read the count from 16 bits"));
    out.bytes(&first.meta.parent_hash.0);
    match &first.place {
        Place::Regions(_) => out.u8(0),
        Place::Stream(position) => out.u8(1).u64(*position),
    };
    for record in &group.records {
        out.bytes(&record.meta.hash.0);
        out.u64(record.meta.timestamp).u64(record.max_timestamp).u32(record.tx_count);
        for number in record.lens.iter().chain(&record.checksums) {
            out.u32(*number);
        }
        if let Place::Regions(ptrs) = &record.place {
            write_ptrs(&mut out, ptrs);
        }
    }
    out.finish()
}

fn write_blob(out: &mut Writer, blob: &Blob) {
    out.u64(blob.len);
    match &blob.place {
        Place::Regions(ptrs) => {
            out.u8(0);
            write_ptrs(out, ptrs);
        }
        Place::Stream(position) => {
            out.u8(1).u64(*position);
        }
    }
}

/// The body of a row of `runs`.
pub fn run_record(record: &RunRecord) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(record.first).u64(record.last).u64(record.entries).u32(record.missing);
    write_blob(&mut out, &record.filter);
    out.u8(u8::from(record.run.is_some()));
    if let Some(run) = &record.run {
        write_blob(&mut out, run);
    }
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
