package amqpmsg

// CheckTable returns why amqp091-go can't read the headers of a message; nil if it can. It
// takes them in AMQP's encoding, without their length. It allocates nothing for headers that
// can be read.
//
// AMQP's specification, section 4.2.1, calls a signed integer of 64 bits L, and RabbitMQ and
// most libraries call it l (https://www.rabbitmq.com/amqp-0-9-1-errata#section_3). CheckTable
// writes l for L, in place: py-amqp sends L.
func CheckTable(b []byte) error {
	d := decoder{b: b}
	d.skipTable(0)
	return d.err
}

// skipTable reads to the end.
func (d *decoder) skipTable(depth int) {
	for n := 0; len(d.b) > 0; n++ {
		d.nextBytes(int(d.byte()))
		d.skipElement(n, depth)
	}
}

// skipArray reads to the end.
func (d *decoder) skipArray(depth int) {
	for n := 0; len(d.b) > 0; n++ {
		d.skipElement(n, depth)
	}
}

// skipElement reads the value number n of a table or array.
func (d *decoder) skipElement(n, depth int) {
	if n == maxElements {
		d.fail(errMany)
	}
	if len(d.b) > 0 && d.b[0] == 'L' {
		d.b[0] = 'l'
	}
	switch tag := d.byte(); tag {
	case 'F', 'A':
		in := decoder{b: d.long(), err: d.err}
		if depth == maxDepth {
			in.fail(errDeep)
		}
		if tag == 'F' {
			in.skipTable(depth + 1)
		} else {
			in.skipArray(depth + 1)
		}
		d.outside(&in)
	case 'S', 'x':
		d.long()
	case 'V':
	case 'b', 'B', 't':
		d.nextBytes(1)
	case 's', 'u':
		d.nextBytes(2)
	case 'I', 'i', 'f':
		d.nextBytes(4)
	case 'D':
		d.nextBytes(5)
	case 'l', 'd', 'T':
		d.nextBytes(8)
	default:
		d.fail(unknownType(tag))
	}
}
