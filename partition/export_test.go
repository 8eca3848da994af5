package partition

import "github.com/spillway-io/spillway/partition/backend/backendtest"

// Patient has the store's backend be patient: see backendtest.Patient.
func Patient(s *Store) { backendtest.Patient(s.backend) }
