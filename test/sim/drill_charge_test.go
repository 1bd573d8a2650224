package sim_test

import "github.com/gatehousehq/gatehouse"

// charge: what was charged is repaid before anything else is let through, whatever server is asked, and not
// twice. A refund lowers the debt.
func (d *drilled) charge() {
	for _, kind := range limiters {
		d.early(window)
		taken := int64(len(d.emptied(kind, limit(kind))))
		// With this three limits and one were taken, and no limiter lets the last of them through earlier.
		const least = 2 * window
		one := d.ask(1, kind, charge(3*slots+1-taken))
		if !one.granted() || one.d.Delay < least || one.d.Remaining != 0 {
			d.complain(kind, "%s with a delay of %s, want it granted and %s or more", one, one.d.Delay, least)
			return
		}
		for i := 0; d.storeTime().Before(one.d.At.Add(least)); i++ {
			early := d.ask(i, kind, inForce())
			if early.granted() && early.d.At.Before(one.d.At.Add(least)) {
				d.complain(kind, "%s at %s, before the charge at %s was repaid", early, early.d.At, one.d.At)
				return
			}
			pause(step)
		}
		pause(one.d.Delay)
		pause(2 * window)
		d.all(kind)
		pause(2 * window)
		d.refunded(kind)
	}
}

// refunded: what was charged and refunded in full leaves nothing. All of it happens within one interval: that
// of a token bucket began with its first acquire, that of the others with the window.
func (d *drilled) refunded(kind gatehouse.Kind) {
	if kind == gatehouse.TokenBucket {
		one := d.ask(0, kind, inForce())
		pause(one.d.ResetAfter + prompt)
	} else {
		d.early(window)
	}
	refund := charge(4 * slots)
	refund.Op = gatehouse.OpRefund
	d.ask(0, kind, charge(4*slots))
	d.ask(1, kind, refund)
	if n := len(d.emptied(kind, limit(kind))); n != slots {
		d.complain(kind, "%d were let through after a charge that was refunded, want %d", n, slots)
	}
}

// charge takes n under the limit in force.
func charge(n int64) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpCharge, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: n}
}

// inForce is an acquire under the limit in force.
func inForce() gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1}
}
