package deploy

import (
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Grafana ignores what it does not know, so a field with a wrong name or shape
// would be a panel that shows something else.
func TestTheDashboardHasOnlyFieldsThatGrafanaKnows(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile("observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard.Dashboard
	// It returns an error without text if there is none.
	if err := board.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		t.Error(err)
	}
	if err := board.Validate(); err != nil {
		t.Error(err)
	}
}
