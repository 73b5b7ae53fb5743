//! Messages of protocol buffers (protobuf.dev, "Encoding"), written and read.
//!
//! pprof's format has a handful of messages, whose fields are named by number where they are used. Generated code would
//! take a compiler for the format, or a second copy of its definitions.

/// A protocol buffer's message while it is written.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A number, in a field of wire type 0. Readers take a missing field as zero.
    pub(crate) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(number);
        }
    }

    /// Bytes, in a field of wire type 2.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// Numbers side by side.
    pub(crate) fn packed(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) {
        let mut packed = Message::default();
        numbers.into_iter().for_each(|number| packed.varint(number));
        self.message(field, &packed);
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'m> {
    /// Of wire types 0, 1 and 5.
    Number(u64),
    /// Of wire type 2: bytes, a text, or a message.
    Bytes(&'m [u8]),
}

impl<'m> Value<'m> {
    /// The number, or those side by side, as repeated numbers are written.
    ///
    /// # Errors
    /// A number in packed bytes ends behind them.
    pub(crate) fn numbers(self) -> impl Iterator<Item = Result<u64, Damage>> {
        let (mut first, mut rest) = match self {
            Value::Number(number) => (Some(number), &[][..]),
            Value::Bytes(bytes) => (None, bytes),
        };
        std::iter::from_fn(move || match first.take() {
            Some(number) => Some(Ok(number)),
            None if rest.is_empty() => None,
            None => Some(varint(&mut rest).inspect_err(|_| rest = &[])),
        })
    }

    /// The number; 0 for bytes, which such a field never has.
    pub(crate) fn number(self) -> u64 {
        if let Value::Number(number) = self { number } else { 0 }
    }

    /// The bytes; empty for a number.
    pub(crate) fn bytes(self) -> &'m [u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }
}

/// A message ends within a field, or has a wire type that is not in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage;

/// The fields of a message: numbers and values. It ends with the first damage.
pub(crate) struct Fields<'m>(pub(crate) &'m [u8]);

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u64, Value<'m>), Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = field(&mut self.0);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The numbers in these fields of a message; 0 for a missing one.
pub(crate) fn numbers<const N: usize>(message: &[u8], fields: [u64; N]) -> Result<[u64; N], Damage> {
    let mut numbers = [0; N];
    for field in Fields(message) {
        let (field, value) = field?;
        if let Some(at) = fields.iter().position(|wanted| *wanted == field) {
            numbers[at] = value.number();
        }
    }
    Ok(numbers)
}

fn field<'m>(rest: &mut &'m [u8]) -> Result<(u64, Value<'m>), Damage> {
    let key = varint(rest)?;
    let value = match key & 7 {
        0 => Value::Number(varint(rest)?),
        1 => Value::Number(u64::from_le_bytes(take(rest, 8)?.try_into().map_err(|_| Damage)?)),
        2 => {
            let length = varint(rest)?;
            Value::Bytes(take(rest, usize::try_from(length).map_err(|_| Damage)?)?)
        }
        5 => Value::Number(u32::from_le_bytes(take(rest, 4)?.try_into().map_err(|_| Damage)?).into()),
        _ => return Err(Damage),
    };
    Ok((key >> 3, value))
}

fn take<'m>(rest: &mut &'m [u8], length: usize) -> Result<&'m [u8], Damage> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Damage)?;
    *rest = after;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Damage> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte, after @ ..] = rest else { return Err(Damage) };
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Damage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_protocol_buffers_say() {
        let mut message = Message::default();
        message.number(1, 150);
        message.number(2, 0);
        message.bytes(2, b"testing");
        message.packed(4, [3, 270, 86942]);
        // The examples of protobuf.dev, "Encoding".
        let expected = b"\x08\x96\x01\x12\x07testing\x22\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(message.0, expected);
    }
    #[test]
    fn fields_are_read_as_they_were_written_and_damage_ends_them() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.packed(4, [3, 270, u64::MAX]);
        let mut whole = message.0;
        whole.extend([0x2d, 1, 0, 0, 0, 0x31, 2, 0, 0, 0, 0, 0, 0, 0]);
        let fields: Vec<_> = Fields(&whole).map(Result::unwrap).collect();
        assert_eq!(fields[..2], [(1, Value::Number(150)), (2, Value::Bytes(b"testing"))]);
        let numbers: Vec<u64> = fields[2].1.numbers().map(Result::unwrap).collect();
        assert_eq!(
            (numbers, &fields[3..]),
            (vec![3, 270, u64::MAX], &[(5, Value::Number(1)), (6, Value::Number(2))][..])
        );
        let ends = [0, 3, 12, 27, 32, whole.len()];
        for cut in 0..=whole.len() {
            let good = Fields(&whole[..cut]).all(|field| field.is_ok());
            assert_eq!(good, ends.contains(&cut), "{cut}");
        }
        // Ten bytes that continue, a length beyond the end, a group.
        for bad in [&[0x80; 11][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0x0b]] {
            assert_eq!(Fields(bad).collect::<Vec<_>>(), [Err(Damage)]);
        }
    }
}
