package modal_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/modal"
	"github.com/pccrun/pccrun/providers/remote"
)

// TestDescribe: what is asked for is bounded by what it costs, and closed where the policy is.
func TestDescribe(t *testing.T) {
	s := modal.NewService(nil)
	describe := func(r *remote.Request) string {
		r.Lifetime, r.Labels = time.Hour, map[string]string{"a": "b"}
		text, err := json.Marshal(s.Describe(r))
		require.NoError(t, err)
		return string(text)
	}
	rule := func(text string) *profiles.Policy {
		return &profiles.Policy{Network: profiles.Network{Allow: []profiles.NetRule{{Text: text}}}}
	}
	require.JSONEq(t, `{"BlockNetwork":true,"CPU":1,"CPULimit":1,"Image":"buildpack-deps:bookworm","MemoryLimitMiB":4096,"MemoryMiB":4096,"Tags":{"a":"b"},"Timeout":"1h0m0s"}`,
		describe(&remote.Request{Policy: &profiles.Policy{}}))
	asked := describe(&remote.Request{Policy: rule("allow *.example.com"), Image: "node:24", Size: profiles.Size{CPUs: 0.6, MemoryMB: 1000}, Region: "eu"})
	require.JSONEq(t, `{"CPU":0.375,"CPULimit":0.375,"Image":"node:24","MemoryLimitMiB":1024,"MemoryMiB":1024,"OutboundDomainAllowlist":{"Entries":["*.example.com"]},
		"Regions":["eu"],"Tags":{"a":"b"},"Timeout":"1h0m0s"}`, asked)
	require.NotContains(t, describe(&remote.Request{Policy: rule("allow 10.0.0.1:22")}), "Allowlist")
	require.InDelta(t, 0.239, s.Facts.Price(s.Facts.Size), 0.001)
	require.InEpsilon(t, 1.75, s.Facts.Prices.Region, 0.001, "https://modal.com/docs/guide/region-selection")
}

func TestReady(t *testing.T) {
	require.NoError(t, modal.NewService([]string{"MODAL_TOKEN_ID=ak-1", "MODAL_TOKEN_SECRET=as-1"}).Ready())
	require.EqualError(t, modal.NewService([]string{"MODAL_TOKEN_ID=ak-1"}).Ready(), "provider modal: MODAL_TOKEN_SECRET is not set")
	require.ErrorContains(t, modal.NewService([]string{"MODAL_TOKEN_ID=ak-1", "MODAL_TOKEN_SECRET=as-1", "MODAL_SERVER_URL=http://api.example.com"}).Ready(), "in clear text")
}
