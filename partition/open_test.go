package partition

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	namespaces := map[string]Policy{"default": DefaultPolicy()}
	broken := DefaultPolicy()
	broken.Batch = 1000
	for field, cfg := range map[string]Config{
		"prefix":     {URL: "embedded:", Prefix: "{a}", Namespaces: namespaces},
		"namespaces": {URL: "embedded:", Prefix: "sw"},
		"batch":      {URL: "embedded:", Prefix: "sw", Namespaces: map[string]Policy{"default": broken}},
		"redis":      {URL: "ftp://h", Prefix: "sw", Namespaces: namespaces},
	} {
		reg := prometheus.NewRegistry()
		var wrong *FieldError
		if _, err := Open(cfg, reg, zap.NewNop()); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
		// The caller corrects it and tries again.
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("%s: Open after a failed Open panics: %v", field, v)
				}
			}()
			s, err := Open(Config{URL: "embedded:", Prefix: "sw", Namespaces: namespaces}, reg, zap.NewNop())
			if err != nil {
				t.Errorf("%s: %v", field, err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close twice: %v", err)
			}
		}()
	}
}
