package scanner

import "testing"

func TestABellTellsOfTheEarliestSince(t *testing.T) {
	t.Parallel()
	b := newBells()
	own, leave := b.attend(3)
	other, leaveOther := b.attend(4)
	defer leaveOther()
	b.ring(3, 500)
	b.ring(3, 200)
	b.ring(3, 900)
	<-own.rung
	if score := own.take(); score != 200 {
		t.Fatalf("heard of %d, the earliest was 200", score)
	}
	if score := own.take(); score != 0 {
		t.Fatalf("heard of %d twice", score)
	}
	select {
	case <-other.rung:
		t.Fatal("another shard's bell rang")
	default:
	}
	leave()
	b.ring(3, 100)
	select {
	case <-own.rung:
		t.Fatal("a bell rang that was taken down")
	default:
	}
}

func TestTwoWorkersWithOneShardBothHear(t *testing.T) {
	t.Parallel()
	b := newBells()
	first, leaveFirst := b.attend(0)
	defer leaveFirst()
	second, leaveSecond := b.attend(0)
	defer leaveSecond()
	b.ring(0, 7)
	<-first.rung
	<-second.rung
	if first.take() != 7 || second.take() != 7 {
		t.Fatal("they heard of different scores")
	}
}
