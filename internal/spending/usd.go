// Package spending counts what the answers of model APIs cost, and keeps the sum where several processes see it.
//
// A [File] holds a limit, what was spent of it, and until when the API wants no requests. It promises that each [File.Add]
// counts once, whoever else adds at the time, and that a reader sees a sum that stood at some moment. It knows nothing of
// prices or answers: package meter does.
package spending

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// A USD is an amount of money, in millionths of a US dollar.
type USD int64

// String writes an amount in cents: "$1.04". What is less than half a cent has a digit that is none: "$0.0032".
func (u USD) String() string {
	switch dollars := float64(u) / 1e6; {
	case u > 0 && u < 100:
		return fmt.Sprintf("$%.6f", dollars)
	case u > 0 && u < 5000:
		return fmt.Sprintf("$%.4f", dollars)
	default:
		return fmt.Sprintf("$%.2f", dollars)
	}
}

// Dollars is the amount as a number for JSON.
func (u USD) Dollars() float64 { return float64(u) / 1e6 }

// mostUSD bounds a budget: no sum of what was spent overflows.
const mostUSD = 1e9

var errUSD = errors.New("want US dollars, more than 0 and at most 1000000000, e.g. 2 or 0.50")

// ParseUSD reads an amount as a user writes it: 2, 0.5 or $2.
func ParseUSD(text string) (USD, error) {
	if len(text) > 1 && text[0] == '$' {
		text = text[1:]
	}
	for _, c := range text { // no exponent, sign, NaN or hexadecimal
		if c != '.' && (c < '0' || c > '9') {
			return 0, errUSD
		}
	}
	dollars, err := strconv.ParseFloat(text, 64)
	amount := USD(math.Round(min(dollars, 2*mostUSD) * 1e6))
	if err != nil || amount <= 0 || dollars > mostUSD {
		return 0, errUSD
	}
	return amount, nil
}
