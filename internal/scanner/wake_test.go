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
	if scores := own.take(); len(scores) != 1 || scores[3] != 200 {
		t.Fatalf("heard of %v, the earliest of shard 3 was 200", scores)
	}
	if scores := own.take(); len(scores) != 0 {
		t.Fatalf("heard of %v twice", scores)
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
	if first.take()[0] != 7 || second.take()[0] != 7 {
		t.Fatal("they heard of different scores")
	}
}

func TestABellTellsOfEachOfItsShards(t *testing.T) {
	t.Parallel()
	b := newBells()
	own, leave := b.attend(3, 4)
	for shard, score := range map[int]int64{3: 500, 4: 200, 5: 100} {
		b.ring(shard, score)
	}
	<-own.rung
	if scores := own.take(); len(scores) != 2 || scores[3] != 500 || scores[4] != 200 {
		t.Fatalf("heard of %v, want 500 in shard 3 and 200 in shard 4", scores)
	}
	leave()
	b.ring(4, 50)
	if scores := own.take(); len(scores) != 0 {
		t.Fatalf("heard of %v after it was taken down", scores)
	}
}
