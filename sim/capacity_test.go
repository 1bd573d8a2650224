package sim_test

func (c *cluster) capacity() {}
