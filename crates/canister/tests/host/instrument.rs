//! A module with its function table exported: a host reaches callbacks through it.

/// An unsigned LEB128 number, and where it ends.
fn number(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return (value, at);
        }
    }
}

fn put(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// The same module with its first table under a name.
pub fn with_table(wasm: &[u8], name: &str) -> Vec<u8> {
    const HEADER: usize = 8;
    const EXPORTS: u8 = 7;
    const TABLE: [u8; 2] = [1, 0];
    let mut out = wasm[..HEADER].to_vec();
    let mut at = HEADER;
    while at < wasm.len() {
        let (kind, (len, body)) = (wasm[at], number(wasm, at + 1));
        let end = body + len;
        if kind == EXPORTS {
            let (count, first) = number(wasm, body);
            let mut section = Vec::new();
            put(&mut section, count + 1);
            section.extend_from_slice(&wasm[first..end]);
            put(&mut section, name.len());
            section.extend_from_slice(name.as_bytes());
            section.extend(TABLE);
            out.push(kind);
            put(&mut out, section.len());
            out.extend(section);
        } else {
            out.extend_from_slice(&wasm[at..end]);
        }
        at = end;
    }
    out
}
