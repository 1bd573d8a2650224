package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A recipe says how many clients want how much, and how that changes: "5x15+random_change(10%)" is 5 clients
// that begin with 15 and then want up to a tenth more or less at each step.
type recipe struct {
	count    int
	base     float64
	change   string  // one of changes; empty: it stays
	by       float64 // an amount, or a share of what it is
	relative bool
}

// changes are the names of the functions a recipe may use.
var changes = []string{"constant_increase", "random_change", "sin", "inc_sin"}

var recipeForm = regexp.MustCompile(`^(\d+)x([0-9.]+)(?:\+([a-z_]+)\(([0-9.]+)(%?)\))?$`)

// sinSteps is the number of steps of one turn of a sine that is never reset.
const sinSteps = 60

var errRecipe = errors.New("no recipe, want one such as 5x15, 5x15+random_change(10%) or 5x15+sin(3)")

func parseRecipe(text string) (recipe, error) {
	// The groups of the expression are: number of clients, amount, change, its argument, percent sign.
	part := recipeForm.FindStringSubmatch(strings.ReplaceAll(text, " ", ""))
	if part == nil {
		return recipe{}, fmt.Errorf("%q is %w", text, errRecipe)
	}
	count, err := parseCount(MaxClients)(part[1])
	if err != nil {
		return recipe{}, err
	}
	base, err := parseNumber(part[2])
	if err != nil {
		return recipe{}, err
	}
	r := recipe{count: count, base: base, change: part[3], relative: part[5] == "%"}
	if r.change == "" {
		return r, nil
	}
	if !slices.Contains(changes, r.change) {
		return recipe{}, fmt.Errorf("%q changes by %s, want one of %s",
			text, r.change, strings.Join(changes, ", "))
	}
	// The expression admits 1.2.3, so this can fail.
	r.by, err = strconv.ParseFloat(part[4], 64)
	if err != nil {
		return recipe{}, fmt.Errorf("%q changes by %q, want a number", text, part[4])
	}
	// Kept as a part of 1.
	if r.relative {
		r.by /= 100
	}
	return r, nil
}

// A wantsState is what one client wants now, and what it began with.
type wantsState struct{ base, now float64 }

// next returns what a client wants after one more step, the first being 1. turn is the number of steps in one
// turn of a sine.
func (r *recipe) next(w wantsState, step, turn int, random *rand.Rand) float64 {
	by := r.by
	// A random walk is relative to where it is, all other changes to where they began.
	if r.relative && r.change == "random_change" {
		by *= w.now
	} else if r.relative {
		by *= w.base
	}
	// One turn of the sine in turn steps.
	angle := 2 * math.Pi * float64(step) / float64(turn)
	switch r.change {
	case "constant_increase":
		w.now += by
	case "random_change":
		w.now += by * (2*random.Float64() - 1)
	case "sin":
		w.now = w.base + by*math.Sin(angle)
	case "inc_sin":
		w.now = w.base + by*math.Sin(angle)*float64(step)/float64(turn)
	}
	return max(0, w.now)
}

// stepsPerTurn returns the number of steps until the recipe starts again.
func (g *clientGroup) stepsPerTurn() int {
	if g.reset == 0 || g.every == 0 {
		return sinSteps
	}
	// Rounded to the nearest whole number.
	return max(1, int((g.reset+g.every/2)/g.every))
}
